"""Tests of the gateway: real sockets on 127.0.0.1, scripted servers on the other side."""
