package pgstore

// rowsPerTrip is how many rows are written in one round trip.
const rowsPerTrip = 1000

// inTrips sends one statement for each of some rows, rowsPerTrip of them in a round trip, and
// returns what they answer. On an error it returns that of the first row that failed, and which row
// that is: those after it only say that the transaction is over.
func inTrips[Param, Row any](params []Param, send func([]Param, func(int, Row, error))) (answers []Row, failed int, err error) {
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
