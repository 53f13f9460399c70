"""Rights of users in rooms: how tokens name them, and their bits, which frames carry."""

READ, SEND, MODERATE, IMPORT, ADMIN = 1, 2, 4, 16, 31  # admin includes the others
RIGHTS = {"read": READ, "send": SEND, "moderate": MODERATE, "import": IMPORT, "admin": ADMIN}
