"""Egress: pods reach what the machine reaches, but nothing of the machine (decision 248).

In the cluster's network namespace the kernel hands packets for other networks to transparent
sockets (``tproxy_setup``). A relay in the machine's namespace holds those sockets and connects on
behalf of pods. It decides who may go where (``egress_policy``), carries TCP (``tcp_connector``,
``tcp_streams``) and UDP (``udp_forwarder``), and answers or forwards DNS (``dns``). A process that
the shim left outside starts it (``relay_launcher``), when the first packet comes
(``egress_manager``).
"""
