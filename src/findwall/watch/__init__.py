"""A job that runs already, seen from outside: nothing is started, injected or opened in it.

`processes` finds its processes, `usage` counts what they take of the machine, `spy` asks py-spy where their
threads are, `gpus` asks NVML about their devices, and `watcher` makes a Run of it.
"""
