package dev

// howToConnect prints what other clients need.
func (s *Service) howToConnect(bootstrap string) {
	a := s.state.Demo.Account
	url := s.apiURL() + "/oauth2/token"
	s.say(`
Connect with kcat (its librdkafka must have OIDC, which Debian 12's has not):

  kcat -b %[1]s -X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=OAUTHBEARER \
    -X sasl.oauthbearer.method=oidc -X sasl.oauthbearer.token.endpoint.url=%[2]s \
    -X sasl.oauthbearer.client.id=%[3]s -X sasl.oauthbearer.client.secret=%[4]s \
    -C -t %[5]s -e

and with Python (pip install confluent-kafka):

  from confluent_kafka import Consumer
  c = Consumer({"bootstrap.servers": "%[1]s",
                "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "%[2]s",
                "sasl.oauthbearer.client.id": "%[3]s", "sasl.oauthbearer.client.secret": "%[4]s",
                "group.id": "readers", "auto.offset.reset": "earliest"})
  c.subscribe(["%[5]s"])
  while (m := c.poll(10)): print(m.key(), m.value())
`, bootstrap, url, a.ClientID, a.ClientSecret, eventsTopic)
}
