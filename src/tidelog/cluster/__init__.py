"""What the cluster is: the image, the controller that changes it, the brokers that follow it."""
