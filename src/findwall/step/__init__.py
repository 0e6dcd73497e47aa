"""What the rows of a timeline are to each other: who launched what, steps, what the host was doing.

Only what the recording itself says. Replaying the step and attributing its time stand on this.
"""
