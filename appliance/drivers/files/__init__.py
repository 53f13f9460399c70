"""What every driver that keeps files needs: names that are durable."""
