"""Start brokers of any system, harm them, and judge what their MQTT clients saw: see README.md beside this file."""
