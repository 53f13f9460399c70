"""Reports by a real Spark. A package: the Spark that its tests share ends with it."""
