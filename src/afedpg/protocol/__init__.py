"""The protocol between server and agents (federation.proto), and the one encoding of a Report: wire, journal, Ray."""
