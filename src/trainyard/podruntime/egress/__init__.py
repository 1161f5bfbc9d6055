"""The way out: how pods reach what the machine reaches, and nothing of the machine (decision 248).

In the cluster's network namespace the kernel hands what pods send elsewhere to sockets made there
(``gate``). A relay in the machine's namespace holds those sockets and connects for the pods: it
decides who may go where (``policy``), carries TCP (``connecting``, ``streams``) and UDP
(``datagrams``), and asks the machine's name servers (``resolver``). It is started by a process that
the shim left behind outside (``starter``), when the first packet comes (``keeper``).
"""
