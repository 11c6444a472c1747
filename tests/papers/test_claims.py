"""Every entry of the lab rests on a claim of its paper. Every claim has a test here, or a reason why it has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trellis.lab.catalogue import catalogue

HERE = Path(__file__).parent
GOALS = "the paper counts other messages on other interests: the bounds are goals of our own"
TIMES = "a time: no test asserts how long something takes"
LARGE = "shows at the paper's size alone"
NO_DATA = "needs a data set that is not at hand"
NOT_OURS = "not found by us at any size: docs/papers.md and docs/vitis.md have the numbers"
BEYOND = "no claim of the paper: how numbers grow beyond its sizes"
# A place in a paper: [OM 6.8], [4.2], IV-B:, Fig. 1, Lemmas 2 b, Abstract.
PLACE = re.compile(
    r"\[[^\]]*(?:\d|[IVX]+-[A-Z])[^\]]*\]|\b[IVX]+(?:-[A-G]\d?)?[:,]|\bFig\. \d|\bLemmas? \d|\bAbstract:"
)
# Entry -> a test in this folder, by a part of its name, or why there is none.
CLAIMS = {
    "omen-tab1": "test_the_static_algorithms_trade_links_for_degrees",
    "omen-ex2": "test_the_example_is_repaired_by_its_successor_within_the_shadow_set",
    "omen-fig3": "test_greediness_leads_to_prioritizing_bulk_nodes",
    "omen-fig4": "test_greediness_leads_to_prioritizing_bulk_nodes",
    "omen-s63": "test_greedy_backups_are_more_unfair_under_skewed_popularity",
    "omen-fig5": "test_with_greedy_backups_the_maximum_degree_grows_faster",
    "omen-fig6": LARGE,
    "omen-fig7": NO_DATA,
    "omen-fig8a": "test_the_local_view_grows_with_the_coverage_factor",
    "omen-fig8b": "test_more_backups_keep_the_maximum_degree_lower",
    "omen-fig9a": "test_degrees_stay_close_to_those_of_a_rebuild",
    "omen-fig9b": "test_the_degree_grows_like_a_step_function",
    "omen-fig9c": "test_spidercast_has_several_times_the_maximum_degree",
    "omen-s65": "test_local_knowledge_is_nearly_as_good_as_global",
    "omen-fig10a": TIMES,
    "omen-fig10b": TIMES,
    "omen-fig10c": TIMES,
    "omen-fig11": "test_topic_diameters_are_inversely_proportional_to_degrees",
    "omen-fig12": "test_link_heartbeats_cost_spidercast_more_since_its_degrees_are_higher",
    "omen-s68": GOALS,
    "omen-claim-2L": "test_a_node_keeps_at_most_2l_views",
    "omen-claim-conc": "test_the_immediate_successor_coordinates_and_the_next_one_takes_over",
    "omen-growth": BEYOND,
    "shadows-fig1": "test_fig1_the_shadow_set_is_neighbours_and_backups",
    "shadows-fig2": "test_greed_burdens_a_few_and_leaves_most_with_hardly_any_primaries",
    "shadows-fig3": "test_the_primal_dual_scheme_spreads_the_burden",
    "shadows-fig4": "test_with_greedy_backups_the_maximum_degree_grows_faster",
    "shadows-fig5": "test_more_backups_keep_the_maximum_degree_lower",
    "shadows-fig6": "test_degrees_stay_slightly_above_those_of_a_rebuild_and_are_as_those_of_naive",
    "shadows-fig7": "test_the_shadow_set_is_a_small_part_of_all_nodes",
    "shadows-fig8": "test_a_repair_changes_far_fewer_links_than_building_anew",
    "shadows-abs": "test_a_repair_changes_far_fewer_links_than_building_anew",
    "shadows-also": "test_there_is_a_tco_after_every_round",
    "shadows-exponent": "no claim of the paper: which exponent of sizes its numbers fit",
    "spidercast-s33": "test_greedy_coverage_alone_connects_practical_workloads",
    "spidercast-fig6a": LARGE,
    "spidercast-fig6cure": "test_random_coverage_costs_links",
    "spidercast-fig6b": "test_random_coverage_costs_links",
    "spidercast-s331": "test_the_adaptive_scheme_connects_all_workloads_and_leaves_the_usual_ones_at_three_and_zero",
    "spidercast-fig7a": "test_the_distribution_of_popularity_orders_the_degrees",
    "spidercast-s34": "test_topics_have_small_diameters",
    "spidercast-fig7b": "test_the_more_interests_overlap_the_lower_the_degree",
    "spidercast-fig8a": "test_the_average_degree_falls_as_nodes_are_added",
    "spidercast-fig8b": "test_more_topics_raise_the_degree_moderately",
    "spidercast-fig8c": "test_beyond_a_threshold_more_subscriptions_lower_the_degree",
    "spidercast-fig8d": "test_more_topics_raise_the_degree_moderately",
    "spidercast-fig8e": "test_more_topics_raise_the_degree_moderately",
    "spidercast-fig8f": "test_the_more_interests_overlap_the_lower_the_degree",
    "spidercast-fig9a": "test_sizes_that_vary_cost_as_much_as_their_mean",
    "spidercast-fig9b": "test_sizes_that_vary_more_cost_little_less_than_their_mean",
    "spidercast-fig10": "test_a_part_of_the_membership_is_enough",
    "spidercast-fig11": "test_topics_stay_connected_under_churn",
    "spidercast-s381": NOT_OURS,
    "spidercast-fig12": "test_similarity_has_about_the_degree_that_is_asked_for",
    "spidercast-fig13a": "test_similarity_and_random_links_do_not_connect_topics",
    "spidercast-fig13b": "test_similarity_and_random_links_do_not_connect_topics",
    "spidercast-fig14": "test_a_ring_per_topic_has_many_more_links",
    "spidercast-abs45": "test_a_ring_per_topic_has_many_more_links",
    "spidercast-growth": BEYOND,
    "spidercast-million": BEYOND,
    "vitis-ex1": "test_interests_are_weighed_by_their_overlap",
    "vitis-fig4a": "test_traffic_overhead_drops_with_correlation_and_is_below_that_of_rendezvous_routing",
    "vitis-fig4b": "test_correlated_subscriptions_are_delivered_in_fewer_hops",
    "vitis-fig5": "test_more_nodes_have_little_overhead",
    "vitis-fig6a": "test_larger_tables_mean_less_overhead_and_delay",
    "vitis-fig6b": "test_larger_tables_mean_less_overhead_and_delay",
    "vitis-fig7a": LARGE,
    "vitis-fig7b": LARGE,
    "vitis-fig8": NO_DATA,
    "vitis-fig9": NO_DATA,
    "vitis-fig10a": "test_an_overlay_per_topic_has_no_overhead_and_misses_events_when_its_degree_is_bounded",
    "vitis-fig10b": "test_an_overlay_per_topic_has_no_overhead_and_misses_events_when_its_degree_is_bounded",
    "vitis-fig10c": "test_on_the_interests_of_followers_vitis_is_fastest",
    "vitis-fig11": "test_an_overlay_per_topic_reaches_everybody_once_its_degree_is_free_of_any_bound",
    "vitis-fig12a": "test_a_flash_crowd_hurts_rendezvous_routing_more_and_both_recover",
    "vitis-fig12b": NOT_OURS,
    "vitis-fig12c": "test_a_flash_crowd_hurts_rendezvous_routing_more_and_both_recover",
    "vitis-abs": "test_with_correlated_interests_vitis_has_40_percent_less_overhead",
    "vitis-claim-bound": "test_lookups_over_one_long_link_take_as_many_hops_as_expected",
    "vitis-degree": "test_a_table_is_no_degree",
    "vitis-cycles": "no claim of the paper: whether 50 gossip cycles are enough",
    "vitis-perfect": "test_traffic_overhead_drops_with_correlation_and_is_below_that_of_rendezvous_routing",
    "vitis-growth": BEYOND,
    "vitis-million": BEYOND,
    "magnet-fig1": "test_partitions_halve",
    "magnet-fig2": "test_a_node_has_nineteen_links_however_many_topics_it_has",
    "magnet-fig3a": "test_peers_with_one_category_save_most",
    "magnet-fig3b": "test_skewed_rates_save_more",
    "magnet-fig4a": "test_skewed_popularity_saves_more",
    "magnet-fig4b": "test_no_size_of_subscriptions_costs_more_than_the_strawman",
    "magnet-fig5a": "test_the_most_popular_topics_have_almost_no_overhead",
    "magnet-fig5b": "test_the_most_popular_topics_have_almost_no_overhead",
    "magnet-fig6": "test_spatial_interests_save_more_than_half",
    "magnet-fig7": "test_popularity_under_homophily_is_a_power_law",
    "magnet-fig8a": "test_homophily_saves_and_random_subscriptions_do_not",
    "magnet-fig8b": "test_fewer_subscriptions_a_peer_save_more",
    "magnet-wiki": "test_editors_of_one_article_sit_side_by_side",
    "magnet-abs": "test_clustering_saves_most_relays_on_correlated_interests",
    "magnet-claim-worse": "test_uncorrelated_interests_cost_no_more_than_the_strawman",
    "magnet-growth": BEYOND,
}


def test_every_entry_of_the_lab_has_a_test_of_its_claim_or_a_reason():
    assert CLAIMS.keys() == catalogue().keys()
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")]
    written = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.M)}
    named = {claim for claim in CLAIMS.values() if claim.startswith("test_")}
    assert named <= written


@pytest.mark.parametrize("name", ["omen", "shadows", "spidercast", "vitis", "magnet"])
def test_every_test_of_a_claim_says_where_it_stands_in_the_paper(name):
    text = (HERE / f"test_{name}.py").read_text(encoding="utf-8")
    found = re.findall(r'^def (test_\w+)\([^)]*\):\n(?:    """(.*?)""")?', text, re.M | re.S)
    assert len(found) > 10
    assert [test for test, told in found if not PLACE.search(told)] == []
