"""The broker process: sockets, requests, handlers and housekeeping."""
