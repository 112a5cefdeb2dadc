"""What a training step takes in memory and time, and how to fit it into less memory."""
