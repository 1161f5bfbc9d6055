"""What runs in the processes that the zygote forks: container inits and exec sessions."""
