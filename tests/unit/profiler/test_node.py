from pathlib import Path

from profiler.node import devices_from_query, links_from_topology, node_facts

TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  PIX  = Connection traversing at most a single PCIe bridge

NIC Legend:

  NIC0: mlx5_0
"""


def test_pairs_are_read_from_the_matrix_of_links() -> None:
    assert links_from_topology(TOPOLOGY) == {
        "GPU0": {"GPU1": "NV18", "NIC0": "PIX"},
        "GPU1": {"GPU0": "NV18", "NIC0": "SYS"},
        "NIC0": {"GPU0": "PIX", "GPU1": "SYS"},
    }


def test_no_matrix_no_links() -> None:
    assert links_from_topology("") == {}


def test_devices_are_read_from_lines() -> None:
    answer = "Some GPU, 81559, 550.54, 5, 16, 700.00, 1980, 00000000:1B:00.0\nnot a device\n"

    (device,) = devices_from_query(answer)
    assert device["name"] == "Some GPU"
    assert device["memory_mebibytes"] == "81559"
    assert device["pcie_generation"] == "5"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_sockets_cards_and_adapters_are_read_from_the_kernel(tmp_path: Path) -> None:
    write(tmp_path / "devices/system/node/node0/meminfo", "Node 0 MemTotal:       1024 kB")
    write(tmp_path / "devices/system/node/node0/cpulist", "0-3")
    write(tmp_path / "devices/system/node/node0/distance", "10")
    write(tmp_path / "class/net/eth0/device/numa_node", "0")
    write(tmp_path / "class/net/eth0/speed", "100000")
    write(tmp_path / "class/net/lo/speed", "10")
    write(tmp_path / "class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)")
    write(tmp_path / "class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
    write(tmp_path / "class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand")

    facts = node_facts(sys=tmp_path, environment={"SLURM_JOB_ID": "7", "SLURM_JOB_ACCOUNT": "secret"})

    assert facts["numa"] == [{"node": 0, "cores": "0-3", "memory_bytes": 2**20, "distances": "10"}]
    assert facts["network"] == [{"name": "eth0", "bits_per_second": 10**11, "numa_node": "0"}]
    (port,) = facts["infiniband"]
    assert (port["name"], port["rate"], port["layer"]) == ("mlx5_0", "400 Gb/sec (4X NDR)", "InfiniBand")
    assert facts["slurm"] == {"SLURM_JOB_ID": "7"}


def test_what_nothing_tells_is_left_out(tmp_path: Path) -> None:
    facts = node_facts(sys=tmp_path, environment={})

    assert not {"numa", "network", "infiniband", "slurm"} & facts.keys()
    assert facts["cores"] >= 1
