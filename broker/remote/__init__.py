"""Other processes of the cluster, behind the ports by which a coordinator or a node knows them.

Nothing in `broker/node` or `broker/coordinator` knows this package: the app passes it in.
"""
