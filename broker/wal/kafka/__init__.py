"""A log kept by Apache Kafka: a topic of one partition for each pchannel. See README.md."""
