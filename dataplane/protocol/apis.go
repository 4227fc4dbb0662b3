package protocol

const (
	kib = 1 << 10
	mib = 1 << 20
)

// table is the one place that says what this broker serves. Its limits are wide
// for honest clients (an OffsetCommit of 16 MiB names some 300,000 partitions);
// what keeps memory bounded is Measure. A range ends where the next version's
// behaviour is missing: Produce 12 and Fetch 18 need the second generation of
// transactions and topic ids on produce.
//
// Array elements take the size of kmsg's structs; a test compares.
var table = []*API{
	{Key: 0, Name: "Produce", Min: 3, Max: 11, AdvertisedMin: 0, FlexibleFrom: 9, Flags: Pipelined | KeepsFrame, MaxMemory: 32 * mib,
		shape: mustShape("3+(S)hi[64:0-12(s)13+(u)[40:iYt]t]t")},
	{Key: 1, Name: "Fetch", Min: 4, Max: 17, AdvertisedMin: 4, FlexibleFrom: 12, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("0-14(i)ii3+(i)4+(b)7+(i)7+(i)[64:0-12(s)13+(u)[72:i9+(i)l12+(i)5+(l)it]t]7+([64:7-12(s)13+(u)[4:i]t])11+(s)t")},
	{Key: 2, Name: "ListOffsets", Min: 1, Max: 10, AdvertisedMin: 1, FlexibleFrom: 6, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("i2+(b)[48:s[32:i4+(i)l0-0(i)t]t]10+(i)t")},
	{Key: 3, Name: "Metadata", Min: 0, Max: 12, AdvertisedMin: 0, FlexibleFrom: 9, MaxFrame: 4 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("[32:10+(u)0-9(s)10+(S)t]4+(b)8-10(b)8+(b)t")},
	{Key: 4, Name: "LeaderAndIsr", Min: 0, Max: 7, AdvertisedMin: 0, FlexibleFrom: 4, Flags: InterBroker, MaxMemory: 256 * mib, Factor: 4,
		shape: mustShape("i7+(b)i2+(l)5+(b)0-1([152:0-1(s)iiii[4:i]i[4:i]3+([4:i])3+([4:i])1+(b)6+(b)t])2+([64:s5+(u)[152:0-1(s)iiii[4:i]i[4:i]3+([4:i])3+([4:i])1+(b)6+(b)t]t])[40:isit]t")},
	{Key: 5, Name: "StopReplica", Min: 0, Max: 4, AdvertisedMin: 0, FlexibleFrom: 2, Flags: InterBroker, MaxMemory: 256 * mib, Factor: 4,
		shape: mustShape("i4+(b)i1+(l)0-2(b)[80:s0-0(i)1-2([4:i])3+([24:iibt])t]t")},
	{Key: 6, Name: "UpdateMetadata", Min: 0, Max: 8, AdvertisedMin: 0, FlexibleFrom: 6, Flags: InterBroker, MaxMemory: 256 * mib, Factor: 4,
		shape: mustShape("i8+(b)i5+(l)0-4([120:0-4(s)iiii[4:i]i[4:i]4+([4:i])t])5+([64:s7+(u)[120:0-4(s)iiii[4:i]i[4:i]4+([4:i])t]t])[72:i0-0(s)0-0(i)1+([56:is3+(s)ht])2+(S)t]t")},
	{Key: 7, Name: "ControlledShutdown", Min: 0, Max: 3, AdvertisedMin: 0, FlexibleFrom: 3, Flags: InterBroker, MaxFrame: 4 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("i2+(l)t")},
	{Key: 8, Name: "OffsetCommit", Min: 2, Max: 10, AdvertisedMin: 2, FlexibleFrom: 8, Flags: Pipelined, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("s1+(i)1+(s)7+(S)2-4(l)[64:0-9(s)10+(u)[48:il1-1(l)6+(i)St]t]t")},
	{Key: 9, Name: "OffsetFetch", Min: 1, Max: 10, AdvertisedMin: 1, FlexibleFrom: 6, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("0-7(s)0-7([48:s[4:i]t])8+([64:s9+(S)9+(i)[64:8-9(s)10+(u)[4:i]t]t])7+(b)t")},
	{Key: 10, Name: "FindCoordinator", Min: 0, Max: 6, AdvertisedMin: 0, FlexibleFrom: 3, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("0-3(s)1+(b)4+([16:s])t")},
	{Key: 11, Name: "JoinGroup", Min: 0, Max: 9, AdvertisedMin: 0, FlexibleFrom: 6, MaxFrame: 32 * mib, MaxMemory: 8 * mib, Factor: 1,
		shape: mustShape("si1+(i)s5+(S)s[48:syt]8+(S)t")},
	{Key: 12, Name: "Heartbeat", Min: 0, Max: 4, AdvertisedMin: 0, FlexibleFrom: 4, MaxFrame: 64 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("sis3+(S)t")},
	{Key: 13, Name: "LeaveGroup", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 4, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("s0-2(s)3+([40:sS5+(S)t])t")},
	{Key: 14, Name: "SyncGroup", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 4, MaxFrame: 32 * mib, MaxMemory: 8 * mib, Factor: 1,
		shape: mustShape("sis3+(S)5+(S)5+(S)[48:syt]t")},
	{Key: 15, Name: "DescribeGroups", Min: 0, Max: 6, AdvertisedMin: 0, FlexibleFrom: 5, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[16:s]3+(b)t")},
	{Key: 16, Name: "ListGroups", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 3, MaxFrame: 64 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("4+([16:s])5+([16:s])t")},
	{Key: 17, Name: "SaslHandshake", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: -1, Flags: BeforeAuth | Sasl, MaxFrame: 4 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("s")},
	{Key: 18, Name: "ApiVersions", Min: 0, Max: 4, AdvertisedMin: 0, FlexibleFrom: 3, Flags: BeforeAuth, MaxFrame: 64 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("3+(s)3+(s)5+(S)5+(i)t")},
	{Key: 19, Name: "CreateTopics", Min: 2, Max: 7, AdvertisedMin: 2, FlexibleFrom: 5, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[80:sih[40:i[4:i]t][32:sSt]t]i1+(b)t")},
	{Key: 20, Name: "DeleteTopics", Min: 1, Max: 6, AdvertisedMin: 1, FlexibleFrom: 4, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("0-5([16:s])6+([32:Sut])it")},
	{Key: 21, Name: "DeleteRecords", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 2, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[48:s[24:ilt]t]it")},
	{Key: 22, Name: "InitProducerId", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 2, MaxFrame: 64 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("Si3+(l)3+(h)t")},
	{Key: 23, Name: "OffsetForLeaderEpoch", Min: 2, Max: 4, AdvertisedMin: 2, FlexibleFrom: 4, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("3+(i)[48:s[24:i2+(i)it]t]t")},
	{Key: 28, Name: "TxnOffsetCommit", Min: 0, Max: 5, AdvertisedMin: 0, FlexibleFrom: 3, Flags: Pipelined, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("sslh3+(i)3+(s)3+(S)[64:0-5(s)6+(u)[40:il2+(i)St]t]t")},
	{Key: 29, Name: "DescribeAcls", Min: 1, Max: 3, AdvertisedMin: 1, FlexibleFrom: 2, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("bS1+(b)SSbbt")},
	{Key: 30, Name: "CreateAcls", Min: 1, Max: 3, AdvertisedMin: 1, FlexibleFrom: 2, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[80:bs1+(b)ssbbt]t")},
	{Key: 31, Name: "DeleteAcls", Min: 1, Max: 3, AdvertisedMin: 1, FlexibleFrom: 2, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[56:bS1+(b)SSbbt]t")},
	{Key: 32, Name: "DescribeConfigs", Min: 1, Max: 4, AdvertisedMin: 1, FlexibleFrom: 4, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[56:bs[16:s]t]1+(b)3+(b)t")},
	{Key: 33, Name: "AlterConfigs", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 2, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[56:bs[32:sSt]t]bt")},
	{Key: 34, Name: "AlterReplicaLogDirs", Min: 1, Max: 2, AdvertisedMin: 1, FlexibleFrom: 2, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[48:s[48:s[4:i]t]t]t")},
	{Key: 35, Name: "DescribeLogDirs", Min: 1, Max: 4, AdvertisedMin: 1, FlexibleFrom: 2, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[48:s[4:i]t]t")},
	{Key: 36, Name: "SaslAuthenticate", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 2, Flags: BeforeAuth | Sasl, MaxFrame: 512 * kib, MaxMemory: 256 * kib,
		shape: mustShape("yt")},
	{Key: 37, Name: "CreatePartitions", Min: 0, Max: 3, AdvertisedMin: 0, FlexibleFrom: 2, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[56:si[32:[4:i]t]t]ibt")},
	{Key: 42, Name: "DeleteGroups", Min: 0, Max: 3, AdvertisedMin: 0, FlexibleFrom: 2, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[16:s]t")},
	{Key: 43, Name: "ElectLeaders", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 2, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("1+(b)[48:s[4:i]t]it")},
	{Key: 44, Name: "IncrementalAlterConfigs", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 1, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[56:bs[40:sbSt]t]bt")},
	{Key: 45, Name: "AlterPartitionReassignments", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("i1+(b)[48:s[40:i[4:i]t]t]t")},
	{Key: 46, Name: "ListPartitionReassignments", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("i[48:s[4:i]t]t")},
	{Key: 47, Name: "OffsetDelete", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: -1, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("s[40:s[4:i]]")},
	{Key: 48, Name: "DescribeClientQuotas", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 1, MaxFrame: 64 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("[40:sbSt]bt")},
	{Key: 49, Name: "AlterClientQuotas", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 1, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[56:[32:sSt][40:slbt]t]bt")},
	{Key: 56, Name: "AlterPartition", Min: 0, Max: 3, AdvertisedMin: 0, FlexibleFrom: 0, Flags: InterBroker, MaxFrame: 16 * mib, MaxMemory: 64 * mib, Factor: 4,
		shape: mustShape("il[64:0-1(s)2+(u)[72:ii0-2([4:i])3+([24:ilt])1+(b)it]t]t")},
	{Key: 60, Name: "DescribeCluster", Min: 0, Max: 2, AdvertisedMin: 0, FlexibleFrom: 0, MaxFrame: 4 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("b1+(b)2+(b)t")},
	{Key: 67, Name: "AllocateProducerIds", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0, Flags: InterBroker, MaxFrame: 4 * kib, MaxMemory: 256 * kib, Factor: 4,
		shape: mustShape("ilt")},
	{Key: 68, Name: "ConsumerGroupHeartbeat", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("ssiSSi[16:s]1+(S)S[48:u[4:i]t]t")},
	{Key: 69, Name: "ConsumerGroupDescribe", Min: 0, Max: 1, AdvertisedMin: 0, FlexibleFrom: 0, MaxFrame: mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[16:s]bt")},
	{Key: 75, Name: "DescribeTopicPartitions", Min: 0, Max: 0, AdvertisedMin: 0, FlexibleFrom: 0, MaxFrame: 4 * mib, MaxMemory: 16 * mib, Factor: 4,
		shape: mustShape("[24:st]i{32:sit}t")},
}

var byKey = func() (m [76]*API) {
	for _, a := range table {
		a.aliases = a.shape.hasBytes()
		m[a.Key] = a
	}
	return m
}()
