    index=0, name="NVIDIA H200", uuid="GPU-aaaa", reasons=0x4, clock_mhz=1700, max_clock_mhz=1980,
    busy_percent=99, power_limit_w=700, default_power_w=700, pids=(7,), used_bytes=GIB, total_bytes=140 * GIB, link_width=16,
    max_link_width=16, link_generation=5, max_link_generation=5, persistence=True, mig=False,
