"""What Kubernetes' API server refuses beside wrong types, as rules about plain mappings.

One module a part of the API, after https://github.com/kubernetes/kubernetes/tree/v1.36.0/pkg/apis.
The same rules judge a manifest before it is sent, a job when it is admitted and an object that the
embedded API server is to store (decision 159). Every function takes what has the types of its
schema, and yields problems with paths of the whole object.
"""
