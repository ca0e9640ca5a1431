"""The coordinator: hands out ticks, keeps the catalog of collections, places channels on nodes.

What it knows is in the metadata store; an actor that restarts reads it there again.

    coordinator (rest_for_one)
    ├─ window       makes the oracle's bound durable
    ├─ oracle       hands out ticks, in memory
    ├─ catalog      collections
    ├─ assigner     publishes who serves what
    ├─ reconcilers (one_for_one)
    │   └─ <pchannel>   keeps one pchannel on a node
    └─ broadcaster (one_for_all)
        ├─ tasks (one_for_one)
        │   └─ <broadcast id>   one broadcast on its way
        └─ locks        who has which resource keys, whose callback is next
"""
