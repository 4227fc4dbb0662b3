package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
)

// AlterReplicaLogDirs (key 34), versions 1 to 2 (KIP-113).
//
// Moves replicas of this broker to other folders of log.dirs while they serve; the
// answer is that the move has begun. A replica that is not here yet will be made in
// the folder named, and is answered with REPLICA_NOT_AVAILABLE all the same. Needs
// Alter on the cluster.
func (h *Handler) alterReplicaLogDirs(r *listener.Request) {
	req := r.Body.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	allowed := h.authorizeCluster(r, kmsg.ACLOperationAlter)
	topics := map[string]int{}
	for i := range req.Dirs {
		d := &req.Dirs[i]
		for _, t := range d.Topics {
			j, ok := topics[t.Topic]
			if !ok {
				j = len(resp.Topics)
				topics[t.Topic] = j
				rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
				rt.Topic = t.Topic
				resp.Topics = append(resp.Topics, rt)
			}
			for _, p := range t.Partitions {
				rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p, kerr.ClusterAuthorizationFailed.Code
				if allowed {
					err := h.Partitions.MoveReplica(partition.TopicPartition{Topic: t.Topic, Partition: p}, d.Dir)
					if rp.ErrorCode = code(err); err != nil {
						h.Logger.Warn("replica is not moved", "topic", t.Topic, "partition", p, "dir", d.Dir, "err", err)
					}
				}
				resp.Topics[j].Partitions = append(resp.Topics[j].Partitions, rp)
			}
		}
	}
	r.Reply(resp)
}

// DescribeLogDirs (key 35), versions 1 to 4 (KIP-113; room on the file system from
// v4, KIP-827).
//
// Every folder of log.dirs with the replicas in it that are asked for, all if no
// topics are named, and copies that are to take a replica's place. Needs Describe on
// the cluster: without it no folder is named, and from v3 on the error says so.
func (h *Handler) describeLogDirs(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	if !h.authorizeCluster(r, kmsg.ACLOperationDescribe) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	asked := map[partition.TopicPartition]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			asked[partition.TopicPartition{Topic: t.Topic, Partition: p}] = true
		}
	}
	all := req.Topics == nil
	for _, d := range h.Partitions.DescribeDirs(func(tp partition.TopicPartition) bool { return all || asked[tp] }) {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.ErrorCode = d.Path, code(d.Err)
		out.TotalBytes, out.UsableBytes = d.Total, d.Usable
		for _, rep := range d.Replicas {
			if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != rep.TP.Topic {
				t := kmsg.NewDescribeLogDirsResponseDirTopic()
				t.Topic = rep.TP.Topic
				out.Topics = append(out.Topics, t)
			}
			p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			p.Partition, p.Size, p.OffsetLag, p.IsFuture = rep.TP.Partition, rep.Size, rep.Lag, rep.Future
			t := &out.Topics[len(out.Topics)-1]
			t.Partitions = append(t.Partitions, p)
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	r.Reply(resp)
}
