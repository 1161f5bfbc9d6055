"""What the API returns: views of jobs, pods and stored objects, which send no requests."""

from trainyard.client.job_view import Job as Job
from trainyard.client.object_views import Object as Object
from trainyard.client.pod_views import PodView as PodView
from trainyard.client.pod_views import in_order as in_order
