"""A stranger writes to a cluster whatever its schemas take, and more; the fleet lives on.

``schemas`` says what may be written, in one small language; ``hostile`` has values that somebody
would choose who means harm; ``stream`` makes deeds of both, by a seed; ``grounds`` are clusters
with the portal's roles at work; ``life`` writes, and looks after the others.
"""
