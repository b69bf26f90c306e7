"""What the tools share: starting a service with a simulated fleet, talking to it, reading traces.

Standard library only, so that the tools run wherever the product builds."""
