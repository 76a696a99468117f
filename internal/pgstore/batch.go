package pgstore

const rowsPerTrip = 1000

// inTrips sends one statement for each row, rowsPerTrip in a round trip. An error is the first failed row's, with its
// index: later ones only say that the transaction is over.
func inTrips[Param, Row any](params []Param, send func([]Param, func(int, Row, error))) (answers []Row, failed int,
	err error,
) {
	answers = make([]Row, 0, len(params))
	for len(answers) < len(params) && err == nil {
		sent := len(answers)
		send(params[sent:min(len(params), sent+rowsPerTrip)], func(i int, answer Row, rowErr error) {
			if err == nil && rowErr != nil {
				failed, err = sent+i, writeError(rowErr)
			}
			answers = append(answers, answer)
		})
	}
	return answers, failed, err
}
