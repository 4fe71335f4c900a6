"""A model made of rules that solves small repair tasks from what it is sent."""
