"""What all ranks of a job say together: whose work the others wait for, why, and what it is worth.

A rank's trace becomes a summary (`summarising`), where it lies. The summaries are then matched
(`matching`), put on one clock (`clocks`), and played as one job (`schedule`, `max_plus`), once as it was
and once for each question: what if this rank, node, stage or link were as its peers are (`peers`,
`what_ifs`)? `suspects` names who it is, if chance does not explain it; `reasons` tells what it does longer
than its peers.
"""
