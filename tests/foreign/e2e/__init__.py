"""What Kubernetes' end-to-end tests expect of pods, volumes and Services, rebuilt without their
harness and images: by name, what is created here, and what must be seen then."""
