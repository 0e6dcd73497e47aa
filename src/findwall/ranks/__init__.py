"""What all ranks of a job say together: whose work the others wait for, why, and what it is worth.

A rank's trace becomes a summary where it lies (`reduced`). The summaries are matched, put on one clock and
played as one job (`played`): once as it was, and once for each question (`peers`, `what_ifs`): what if this
rank, node, stage or link were as its peers are? `suspects` names who it is, if chance does not explain it;
`reasons` tells what it does longer than its peers. `parallelism` and `link_rates` tell what the groups are
for and how fast they send.
"""
