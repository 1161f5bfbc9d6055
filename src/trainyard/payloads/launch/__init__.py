"""The launch of DeepSpeed and ColossalAI over ssh: sshd in every pod, and the launcher in one."""
