"""The messages of the Kafka protocol that this appliance speaks, as Kafka documents them.

For each API: its key, name, versions (`flexible`: from which version on its messages have compact
lengths and tagged fields), and the fields of the request (>) and of the response (<).

A field is `name:type`, then `?` (nullable; `?8`: from version 8 on), `@` its versions (`@3`: from
version 3 on, `@0-2`), `#` its tag, and `=` its default where that is not 0, empty or false.
`[…]` is an array, of a type or of a structure, and `{…}` a structure. Versions within a structure
are those of the API.
"""

from __future__ import annotations

from typing import Final

TEXT: Final = """\
0 Produce 3-11 flexible 9
> transactional_id:str?=null acks:i16 timeout_ms:i32 topic_data:[ name:str partition_data:[
  index:i32 records:records? ] ]
< responses:[ name:str partition_responses:[ index:i32 error_code:i16 base_offset:i64
  log_append_time_ms:i64=-1 log_start_offset:i64@5=-1 record_errors:[ batch_index:i32
  batch_index_error_message:str?=null ]@8 error_message:str?@8=null current_leader:{
  leader_id:i32=-1 leader_epoch:i32=-1 }@10#0 ] ] throttle_time_ms:i32 node_endpoints:[
  node_id:i32 host:str port:i32 rack:str?=null ]@10#0

1 Fetch 4-16 flexible 12
> cluster_id:str?@12#0=null replica_id:i32@0-14=-1 replica_state:{ replica_id:i32=-1
  replica_epoch:i64=-1 }@15#1 max_wait_ms:i32 min_bytes:i32 max_bytes:i32=2147483647
  isolation_level:i8 session_id:i32@7 session_epoch:i32@7=-1 topics:[ topic:str@0-12
  topic_id:uuid@13 partitions:[ partition:i32 current_leader_epoch:i32@9=-1 fetch_offset:i64
  last_fetched_epoch:i32@12=-1 log_start_offset:i64@5=-1 partition_max_bytes:i32 ] ]
  forgotten_topics_data:[ topic:str@7-12 topic_id:uuid@13 partitions:[i32] ]@7 rack_id:str@11
< throttle_time_ms:i32 error_code:i16@7 session_id:i32@7 responses:[ topic:str@0-12
  topic_id:uuid@13 partitions:[ partition_index:i32 error_code:i16 high_watermark:i64
  last_stable_offset:i64=-1 log_start_offset:i64@5=-1 diverging_epoch:{ epoch:i32=-1
  end_offset:i64=-1 }@12#0 current_leader:{ leader_id:i32=-1 leader_epoch:i32=-1 }@12#1
  snapshot_id:{ end_offset:i64=-1 epoch:i32=-1 }@12#2 aborted_transactions:[ producer_id:i64
  first_offset:i64 ]? preferred_read_replica:i32@11=-1 records:records? ] ] node_endpoints:[
  node_id:i32 host:str port:i32 rack:str?=null ]@16#0

2 ListOffsets 1-8 flexible 6
> replica_id:i32 isolation_level:i8@2 topics:[ name:str partitions:[ partition_index:i32
  current_leader_epoch:i32@4=-1 timestamp:i64 ] ]
< throttle_time_ms:i32@2 topics:[ name:str partitions:[ partition_index:i32 error_code:i16
  timestamp:i64=-1 offset:i64=-1 leader_epoch:i32@4=-1 ] ]

3 Metadata 0-12 flexible 9
> topics:[ topic_id:uuid@10 name:str?10 ]?1 allow_auto_topic_creation:bool@4=true
  include_cluster_authorized_operations:bool@8-10 include_topic_authorized_operations:bool@8
< throttle_time_ms:i32@3 brokers:[ node_id:i32 host:str port:i32 rack:str?@1=null ]
  cluster_id:str?@2=null controller_id:i32@1=-1 topics:[ error_code:i16 name:str?12
  topic_id:uuid@10 is_internal:bool@1 partitions:[ error_code:i16 partition_index:i32
  leader_id:i32 leader_epoch:i32@7=-1 replica_nodes:[i32] isr_nodes:[i32]
  offline_replicas:[i32]@5 ] topic_authorized_operations:i32@8=-2147483648 ]
  cluster_authorized_operations:i32@8-10=-2147483648

8 OffsetCommit 2-9 flexible 8
> group_id:str generation_id:i32=-1 member_id:str group_instance_id:str?@7=null
  retention_time_ms:i64@2-4=-1 topics:[ name:str partitions:[ partition_index:i32
  committed_offset:i64 committed_leader_epoch:i32@6=-1 committed_metadata:str? ] ]
< throttle_time_ms:i32@3 topics:[ name:str partitions:[ partition_index:i32 error_code:i16 ] ]

9 OffsetFetch 1-9 flexible 6
> group_id:str@0-7 topics:[ name:str partition_indexes:[i32] ]?2@0-7 groups:[ group_id:str
  member_id:str?@9=null member_epoch:i32@9=-1 topics:[ name:str partition_indexes:[i32] ]? ]@8
  require_stable:bool@7
< throttle_time_ms:i32@3 topics:[ name:str partitions:[ partition_index:i32 committed_offset:i64
  committed_leader_epoch:i32@5=-1 metadata:str? error_code:i16 ] ]@0-7 error_code:i16@2-7
  groups:[ group_id:str topics:[ name:str partitions:[ partition_index:i32 committed_offset:i64
  committed_leader_epoch:i32=-1 metadata:str? error_code:i16 ] ] error_code:i16 ]@8

10 FindCoordinator 0-4 flexible 3
> key:str@0-3 key_type:i8@1 coordinator_keys:[str]@4
< throttle_time_ms:i32@1 error_code:i16@0-3 error_message:str?@1-3=null node_id:i32@0-3 host:str@0-3
  port:i32@0-3 coordinators:[ key:str node_id:i32 host:str port:i32 error_code:i16
  error_message:str?=null ]@4

11 JoinGroup 0-9 flexible 6
> group_id:str session_timeout_ms:i32 rebalance_timeout_ms:i32@1=-1 member_id:str
  group_instance_id:str?@5=null protocol_type:str protocols:[ name:str metadata:bytes ]
  reason:str?@8=null
< throttle_time_ms:i32@2 error_code:i16 generation_id:i32=-1 protocol_type:str?@7=null
  protocol_name:str?7 leader:str skip_assignment:bool@9 member_id:str members:[ member_id:str
  group_instance_id:str?@5=null metadata:bytes ]

12 Heartbeat 0-4 flexible 4
> group_id:str generation_id:i32 member_id:str group_instance_id:str?@3=null
< throttle_time_ms:i32@1 error_code:i16

13 LeaveGroup 0-5 flexible 4
> group_id:str member_id:str@0-2 members:[ member_id:str group_instance_id:str?=null
  reason:str?@5=null ]@3
< throttle_time_ms:i32@1 error_code:i16 members:[ member_id:str group_instance_id:str?
  error_code:i16 ]@3

14 SyncGroup 0-5 flexible 4
> group_id:str generation_id:i32 member_id:str group_instance_id:str?@3=null
  protocol_type:str?@5=null protocol_name:str?@5=null assignments:[ member_id:str
  assignment:bytes ]
< throttle_time_ms:i32@1 error_code:i16 protocol_type:str?@5=null protocol_name:str?@5=null
  assignment:bytes

15 DescribeGroups 0-5 flexible 5
> groups:[str] include_authorized_operations:bool@3
< throttle_time_ms:i32@1 groups:[ error_code:i16 group_id:str group_state:str protocol_type:str
  protocol_data:str members:[ member_id:str group_instance_id:str?@4=null client_id:str
  client_host:str member_metadata:bytes member_assignment:bytes ]
  authorized_operations:i32@3=-2147483648 ]

16 ListGroups 0-4 flexible 3
> states_filter:[str]@4
< throttle_time_ms:i32@1 error_code:i16 groups:[ group_id:str protocol_type:str
  group_state:str@4 ]

17 SaslHandshake 0-1
> mechanism:str
< error_code:i16 mechanisms:[str]

18 ApiVersions 0-3 flexible 3
> client_software_name:str@3 client_software_version:str@3
< error_code:i16 api_keys:[ api_key:i16 min_version:i16 max_version:i16 ] throttle_time_ms:i32@1
  supported_features:[ name:str min_version:i16 max_version:i16 ]@3#0
  finalized_features_epoch:i64@3#1=-1 finalized_features:[ name:str max_version_level:i16
  min_version_level:i16 ]@3#2 zk_migration_ready:bool@3#3

19 CreateTopics 2-7 flexible 5
> topics:[ name:str num_partitions:i32 replication_factor:i16 assignments:[ partition_index:i32
  broker_ids:[i32] ] configs:[ name:str value:str? ] ] timeout_ms:i32=60000 validate_only:bool
< throttle_time_ms:i32 topics:[ name:str topic_id:uuid@7 error_code:i16 error_message:str?=null
  topic_config_error_code:i16@5#0 num_partitions:i32@5=-1 replication_factor:i16@5=-1 configs:[
  name:str value:str? read_only:bool config_source:i8=-1 is_sensitive:bool ]?@5 ]

20 DeleteTopics 1-6 flexible 4
> topics:[ name:str?=null topic_id:uuid ]@6 topic_names:[str]@0-5 timeout_ms:i32
< throttle_time_ms:i32 responses:[ name:str?6 topic_id:uuid@6 error_code:i16
  error_message:str?@5=null ]

21 DeleteRecords 0-2 flexible 2
> topics:[ name:str partitions:[ partition_index:i32 offset:i64 ] ] timeout_ms:i32
< throttle_time_ms:i32 topics:[ name:str partitions:[ partition_index:i32 low_watermark:i64=-1
  error_code:i16 ] ]

22 InitProducerId 0-4 flexible 2
> transactional_id:str? transaction_timeout_ms:i32 producer_id:i64@3=-1 producer_epoch:i16@3=-1
< throttle_time_ms:i32 error_code:i16 producer_id:i64=-1 producer_epoch:i16

23 OffsetForLeaderEpoch 2-4 flexible 4
> replica_id:i32@3=-2 topics:[ topic:str partitions:[ partition:i32 current_leader_epoch:i32=-1
  leader_epoch:i32 ] ]
< throttle_time_ms:i32 topics:[ topic:str partitions:[ error_code:i16 partition:i32
  leader_epoch:i32=-1 end_offset:i64=-1 ] ]

24 AddPartitionsToTxn 0-3 flexible 3
> transactional_id:str producer_id:i64 producer_epoch:i16 topics:[ name:str partitions:[i32] ]
< throttle_time_ms:i32 results_by_topic:[ name:str results_by_partition:[ partition_index:i32
  partition_error_code:i16 ] ]

25 AddOffsetsToTxn 0-3 flexible 3
> transactional_id:str producer_id:i64 producer_epoch:i16 group_id:str
< throttle_time_ms:i32 error_code:i16

26 EndTxn 0-3 flexible 3
> transactional_id:str producer_id:i64 producer_epoch:i16 committed:bool
< throttle_time_ms:i32 error_code:i16

28 TxnOffsetCommit 0-3 flexible 3
> transactional_id:str group_id:str producer_id:i64 producer_epoch:i16 generation_id:i32@3=-1
  member_id:str@3 group_instance_id:str?@3=null topics:[ name:str partitions:[
  partition_index:i32 committed_offset:i64 committed_leader_epoch:i32@2=-1
  committed_metadata:str? ] ]
< throttle_time_ms:i32 topics:[ name:str partitions:[ partition_index:i32 error_code:i16 ] ]

29 DescribeAcls 1-3 flexible 2
> resource_type_filter:i8 resource_name_filter:str? pattern_type_filter:i8=3
  principal_filter:str? host_filter:str? operation:i8 permission_type:i8
< throttle_time_ms:i32 error_code:i16 error_message:str?=null resources:[ resource_type:i8
  resource_name:str pattern_type:i8=3 acls:[ principal:str host:str operation:i8
  permission_type:i8 ] ]

32 DescribeConfigs 1-4 flexible 4
> resources:[ resource_type:i8 resource_name:str configuration_keys:[str]? ]
  include_synonyms:bool include_documentation:bool@3
< throttle_time_ms:i32 results:[ error_code:i16 error_message:str?=null resource_type:i8
  resource_name:str configs:[ name:str value:str? read_only:bool config_source:i8=-1
  is_sensitive:bool synonyms:[ name:str value:str? source:i8 ] config_type:i8@3
  documentation:str?@3 ] ]

33 AlterConfigs 0-2 flexible 2
> resources:[ resource_type:i8 resource_name:str configs:[ name:str value:str? ] ]
  validate_only:bool
< throttle_time_ms:i32 responses:[ error_code:i16 error_message:str?=null resource_type:i8
  resource_name:str ]

35 DescribeLogDirs 1-4 flexible 2
> topics:[ topic:str partitions:[i32] ]?
< throttle_time_ms:i32 error_code:i16@3 results:[ error_code:i16 log_dir:str topics:[ name:str
  partitions:[ partition_index:i32 partition_size:i64 offset_lag:i64 is_future_key:bool ] ]
  total_bytes:i64@4=-1 usable_bytes:i64@4=-1 ]

36 SaslAuthenticate 0-2 flexible 2
> auth_bytes:bytes
< error_code:i16 error_message:str?=null auth_bytes:bytes session_lifetime_ms:i64@1

37 CreatePartitions 0-3 flexible 2
> topics:[ name:str count:i32 assignments:[ broker_ids:[i32] ]? ] timeout_ms:i32
  validate_only:bool
< throttle_time_ms:i32 results:[ name:str error_code:i16 error_message:str?=null ]

42 DeleteGroups 0-2 flexible 2
> groups_names:[str]
< throttle_time_ms:i32 results:[ group_id:str error_code:i16 ]

44 IncrementalAlterConfigs 0-1 flexible 1
> resources:[ resource_type:i8 resource_name:str configs:[ name:str config_operation:i8
  value:str? ] ] validate_only:bool
< throttle_time_ms:i32 responses:[ error_code:i16 error_message:str?=null resource_type:i8
  resource_name:str ]

47 OffsetDelete 0-0
> group_id:str topics:[ name:str partitions:[ partition_index:i32 ] ]
< error_code:i16 throttle_time_ms:i32 topics:[ name:str partitions:[ partition_index:i32
  error_code:i16 ] ]

60 DescribeCluster 0-1 flexible 0
> include_cluster_authorized_operations:bool endpoint_type:i8@1=1
< throttle_time_ms:i32 error_code:i16 error_message:str?=null endpoint_type:i8@1=1
  cluster_id:str controller_id:i32=-1 brokers:[ broker_id:i32 host:str port:i32 rack:str?=null ]
  cluster_authorized_operations:i32=-2147483648

61 DescribeProducers 0-0 flexible 0
> topics:[ name:str partition_indexes:[i32] ]
< throttle_time_ms:i32 topics:[ name:str partitions:[ partition_index:i32 error_code:i16
  error_message:str?=null active_producers:[ producer_id:i64 producer_epoch:i32
  last_sequence:i32=-1 last_timestamp:i64=-1 coordinator_epoch:i32
  current_txn_start_offset:i64=-1 ] ] ]
"""
