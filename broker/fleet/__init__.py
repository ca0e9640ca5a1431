"""Node processes of this machine, supervised like actors. Next: broker/fleet/node_process.py"""
