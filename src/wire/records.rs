//! Records and the bytes of `__consumer_offsets`, in Kafka's own schemas.
