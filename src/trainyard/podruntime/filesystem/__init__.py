"""What a container sees as its file system: layers over the host, volumes, /proc, /sys and /dev."""
