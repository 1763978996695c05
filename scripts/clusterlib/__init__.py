"""etcd and GlusterFS on Quire, on one machine: what scripts/clusters.py starts, measures and crashes."""
