"""The 110 things that must have a story, numbered. A story bears one of these names."""

GROUPS: dict[str, tuple[int, str]] = {
    "recovery": (
        1,
        """
        recovery_smoke
        recovery_prepare_corrupt_right_of_head
        recovery_prepare_corrupt_left_of_head_all_three
        recovery_prepare_corrupt_root
        recovery_prepare_corrupt_checkpoint_to_head
        recovery_solo_corrupt_prepare_halts
        recovery_solo_corrupt_witness_fixes_itself
        recovery_torn_tail_one
        recovery_torn_tail_all_in_flight
        recovery_power_cut_all_first_wrap
        recovery_power_cut_all_after_wrap
        recovery_solo_torn_with_standby_intact
        recovery_head_outdated_start_view_rejected
        recovery_head_idle_cluster
        recovery_decision_table_exhaustive
        recovery_view_range_drops_future_prepares
        recovery_misdirected_prepare_write
        recovery_misdirected_witness_write
        recovery_padding_corrupt
        recovery_superblock_each_torn_step
        recovery_superblock_three_bad_halts
        recovery_superblock_fork_halts
        recovery_incarnation_monotonic
        recovery_reformat_small_log
        recovery_reformat_needs_sync
        recovery_reformat_two_lost_refuses""",
    ),
    "network": (
        27,
        """
        partition_isolate_backup
        partition_isolate_backup_send_only
        partition_isolate_backup_receive_only
        partition_isolate_primary
        partition_isolate_primary_send_only
        partition_isolate_primary_receive_only
        partition_client_primary
        partition_client_primary_drop_requests
        partition_client_primary_drop_replies
        partition_flexible_quorum_R4
        dead_backup_commits_within_100ms
        slow_backup_is_sent_prepares_again_and_holds_up_nobody
        cut_off_backup_gets_the_same_log
        replay_every_message_twice
        reorder_prepares_in_pipeline
        primary_clock_unsynchronised_abdicates
        idle_cluster_is_quiet
        bad_signature_dropped_and_counted
        wrong_cluster_dropped
        stale_nonce_dropped""",
    ),
    "view_change": (
        47,
        """
        vc_primary_crash_under_300ms_lan
        vc_dvc_awaits_third_when_one_corrupt_one_missing
        vc_two_corrupt_of_three_stuck_not_lost
        vc_highest_op_does_not_win
        vc_nack_older_view
        vc_corrupt_committed_tail_never_nacked
        vc_faulty_unknown_then_header_learned_still_no_nack
        vc_sv_headers_beyond_prepare_max_survive
        vc_duel_of_primaries
        vc_forfeit_lagging_primary
        vc_lagging_primary_second_round_steps_up
        vc_primary_with_dirty_log
        vc_crash_after_each_persist_point
        vc_log_view_never_regresses
        vc_dvc_list_identical_across_restart
        vc_pipeline_tail_recommitted
        vc_R2_single_nack
        vc_stale_svc_window
        vc_backup_missed_start_view
        vc_isolated_replica_does_not_disturb""",
    ),
    "repair": (
        67,
        """
        repair_headers_gap_break
        repair_prepare_budget_respected
        repair_ack_committed_prepare
        repair_corrupt_reply
        repair_backup_fast_forward_one_checkpoint_without_sync
        repair_primary_checkpoint_backup_crash_before
        repair_serves_from_faulty_slot
        repair_dead_favourite_peer_not_sticky
        repair_commit_continues_over_later_holes
        repair_never_moves_head
        repair_chunk_disjoint_corruption_all_replicas
        scrub_finds_and_heals_cold_corruption""",
    ),
    "checkpoints": (
        79,
        """
        sync_partition_lag_idle
        sync_partition_lag_busy
        sync_slightly_lagging_prefers_wal
        sync_view_change_with_lagging
        sync_crash_at_each_stage
        sync_newer_target_ratchets
        sync_withholds_prepare_ok
        checkpoint_ring_never_overwrites_needed
        checkpoint_ids_equal_after_any_history
        checkpoint_disk_full_halts_cleanly
        snapshot_export_matches_s1_layout_and_verifies""",
    ),
    "clients": (
        90,
        """
        client_register_evict_oldest
        client_evicted_reregisters_no_duplicates
        client_duplicate_request_same_reply_bytes
        client_request_collision_dropped
        client_request_survives_view_change_once
        client_reply_parent_checked
        client_session_too_low
        client_batch_468_records
        client_newer_view_not_evicted_by_old_primary""",
    ),
    "epochs": (
        99,
        """
        epoch_swap_standby_and_replica
        epoch_reconfigure_is_last_op
        epoch_view_change_with_pending
        epoch_old_member_catches_up_by_end_epoch
        epoch_crash_between_commit_and_persist
        epoch_double_reconfigure_rejected
        member_add_standby_syncs""",
    ),
    "later": (
        106,
        """
        retention_extent_reuse_across_crash
        sync_open_segment_sealed_meanwhile
        client_batch_partial_duplicates
        client_window_eviction_deterministic
        clock_cold_start_serves_within_300ms""",
    ),
}
NAMES = {
    number: name
    for first, names in GROUPS.values()
    for number, name in enumerate(names.split(), first)
}
assert list(NAMES) == list(range(1, 111)) and len(set(NAMES.values())) == 110
GROUP_OF = {name: group for group, (_, names) in GROUPS.items() for name in names.split()}
# Stories of these groups name the rule that they prove, and fail without it.
PROVING = ("recovery", "view_change", "repair")
