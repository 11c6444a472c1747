"""A small file in every format that is read, as the real ones are written, and what it says."""

from __future__ import annotations

EDITS_JSON = (
    '{"time":"2015-09-12T00:46:58.771Z","channel":"#en.wikipedia","page":"Talk:Oswald \\"T\\"","user":"GELongstreet",'
    '"isAnonymous":false,"isRobot":false,"delta":36,"comment":"a, b"}\n'
    '{"time":"2015-09-12T00:47:00.496Z","channel":"#ca.wikipedia","page":"Rallicula","user":"PereBot",'
    '"isAnonymous":false,"isRobot":true,"delta":17}\n'
    '{"time":"2015-09-12T00:47:05.474Z","channel":"#en.wikipedia","page":"Rallicula","user":"60.225.66.142",'
    '"isAnonymous":true,"isRobot":false,"delta":0}\n'
    # The real log does not flag all addresses as anonymous: those of IPv6 it misses.
    '{"time":"2015-09-12T00:48:00Z","channel":"#en.wikipedia","page":"Norm","user":"2601:800:8100:1C9B:D874:F2E6:E819:D375",'
    '"isAnonymous":false,"isRobot":false}\n'
)

SAMPLES: dict[str, str] = {
    "twitter": "12\t13\n12\t14\n15\t12\n",
    "facebook": "0 1\n0 2\n1 2\n",
    "edges": "% asym unweighted\n% 3 2 3\n1 2 \n2 3 \n3 1 \n",
    "wikipedia": EDITS_JSON,
    "pairs": "userID\tartistID\tweight\r\n2\t51\t13883\r\n2\t52\t11690\r\n3\t51\t7\r\n",
    "google2011": "0,5,0,HofLGzk1Or/8Ildj2+Lqv0UGGvY82NLoni8+J/Yy0RU=,0.5,0.2493\n"
    "0,6,0,70ZOvysYGtB6j9MUHMPzA2Iy7GRzWeJTdX0YCLRKGVg=,,\n"
    "600000001,5,1,HofLGzk1Or/8Ildj2+Lqv0UGGvY82NLoni8+J/Yy0RU=,0.5,0.2493\n"
    "700000000,6,2,HofLGzk1Or/8Ildj2+Lqv0UGGvY82NLoni8+J/Yy0RU=,0.25,0.2493\n",
    "google2019": '{"time":"0","machine_id":"40","type":"1","switch_id":"x","capacity":{"cpus":0.5}}\n'
    '{"time":"600000000","machine_id":"40","type":2}\n'
    '{"machine_id":"41","type":"ADD"}\n',
    "avt": "e0f4e63e53bcac726a65072887180f56\t2\t 0 64504 65650 67499\n"
    "b77683751fe903fd3fdd3f5c5ca62f80\t1\t 701 7245\n",
    "fta": "#event_id\tcomponent_id\tnode_id\tplatform_id\tnode_name\t"
    "event_type\tevent_start_time\tevent_stop_time\tevent_end_reason\n"
    "0\t0\t7\t1\tnode7\t1\t100.5\t200\tNULL\n"
    "1\t0\t7\t1\tnode7\t0\t200\t300\t3\n"
    "2\t0\t8\t1\tnode8\t1\t150\t400\tNULL\n",
    "sessions": '{"machine":7,"start":100.5,"end":200}\n{"machine":"8","start":150,"end":4e2,"why":null}\n',
    "telemetry": '{"time":1.5,"node":"n1","event":"join","topic":null}\n'
    '{"time":2,"node":"n1","event":"subscribe","topic":"t","broker":"b"}\n',
    "mosquitto": "1700000000: mosquitto version 2.0.18 starting\n"
    "1700000001: New client connected from 10.0.0.7:40000 as c1 (p5, c1, k60).\n"
    "1700000001: No will message specified.\n"
    "1700000002: Received SUBSCRIBE from c1\n"
    "1700000002: \tbuilding/7 (QoS 1)\n"
    "1700000002: c1 1 building/7\n"
    "2023-11-14T22:13:24: Received PUBLISH from c 2 (d0, q0, r0, m0, 'building/7', ... (5 bytes))\n"
    "1700000005: c1 building/7\n"
    "1700000006: Client c1 [10.0.0.7:40000] disconnected.\n",
    "events": '{"time":2,"node":"n1","event":"subscribe","topic":"t"}\n',
    "publications": '{"time":2,"node":"n1","event":"subscribe","topic":"t"}\n'
    '{"time":10,"node":"n1","event":"publish","topic":"t","count":7,"bytes":896,"seconds":5}\n'
    '{"time":15,"node":"n1","event":"publish","topic":"t","count":1,"bytes":128,"seconds":5.0}\n',
}

TSV_EDITS = "user\tpage\ttime\nAnn\tMain page\t2015-09-12T00:46:58Z\n10.0.0.1\tOther\t1442018820.5\n"
JODIE_EDITS = "1 8228 0\n2 8229 36\n2 8229 77\n"
CSV_PAIRS = 'user,topic\nann,"rock, pop"\n"bob ""b""",jazz\n'
