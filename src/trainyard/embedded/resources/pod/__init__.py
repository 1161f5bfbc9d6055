"""Parts of the resource pods: defaults, admission, protobuf, ephemeral containers."""
