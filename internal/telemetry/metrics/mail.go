package metrics

// Mail registers the accepted and failed attempts to send mail.
func (m *Metrics) Mail(attempts func() (sent, failed int64)) {
	const name, help = "sluice_mail_attempts_total",
		"Attempts to hand mail to the mail server. Failed ones are repeated for a day."
	counter(m, name, help, func() int64 { sent, _ := attempts(); return sent }, "result", "sent")
	counter(m, name, help, func() int64 { _, failed := attempts(); return failed }, "result", "failed")
}
