"""The library of QUIC, within bounds: the port for clients, links between sites and the client that
comes by QUIC all use this one."""
