"""What the API returns: views of jobs, pods and stored objects, which send no requests."""

from trainyard.client.job import Job as Job
from trainyard.client.objects import Object as Object
from trainyard.client.pods import PodView as PodView
from trainyard.client.pods import in_order as in_order
