// A client in Go: grpc-go and Go's protobuf, which take the messages from the descriptors of
// schemas/proto, so that nothing of this broker's own code is on its side of the connection.
//
//	go_producer DESCRIPTORS ADDRESS calls COUNT
//	go_producer DESCRIPTORS ADDRESS obeys|ignores PCHANNEL TERM VCHANNEL SECONDS BYTES
//
// `calls` makes so many calls at once, and prints how each ended. The others append messages of so
// many bytes for so many seconds, at most 32 of them unanswered. The one that obeys keeps to the
// newest `rate_limit` frame, as Milvus's producer does: the rate of SLOWDOWN, nothing in REJECT.
// Each prints lines of JSON: what it is told, and how much it has sent by then; at the end what it
// got, and how much it sent in the second half of its time (`late`).
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	produce     = "/milvus.proto.streaming.StreamingNodeHandlerService/Produce"
	health      = "/tidemark.v1.Admin/Health"
	streaming   = "milvus.proto.streaming."
	inFlightMax = 32
)

type object = map[string]any

var files *protoregistry.Files

func main() {
	data, err := os.ReadFile(os.Args[1])
	check(err)
	set := &descriptorpb.FileDescriptorSet{}
	check(proto.Unmarshal(data, set))
	files, err = protodesc.NewFiles(set)
	check(err)
	conn, err := grpc.NewClient(os.Args[2], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()
	if os.Args[3] == "calls" {
		callAtOnce(conn, number(os.Args[4]))
		return
	}
	created := object{"pchannel": object{"name": os.Args[4], "term": number(os.Args[5])}}
	newProducer(conn, created, os.Args[6], os.Args[3] == "obeys").run(
		time.Duration(number(os.Args[7]))*time.Second, number(os.Args[8]))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func tell(told object) {
	line, err := json.Marshal(told)
	check(err)
	fmt.Println(string(line))
}

// message is an empty one of the type.
func message(name string) *dynamicpb.Message {
	found, err := files.FindDescriptorByName(protoreflect.FullName(name))
	check(err)
	return dynamicpb.NewMessage(found.(protoreflect.MessageDescriptor))
}

// made is a message of the type with these fields.
func made(name string, fields object) *dynamicpb.Message {
	text, err := json.Marshal(fields)
	check(err)
	it := message(name)
	check(protojson.Unmarshal(text, it))
	return it
}

// callAtOnce makes calls at once: their codes, and what gRPC's own details say of a wait.
func callAtOnce(conn *grpc.ClientConn, count int) {
	var all sync.WaitGroup
	for range count {
		all.Add(1)
		go func() {
			defer all.Done()
			asked, answer := message("tidemark.v1.HealthRequest"), message("tidemark.v1.HealthResponse")
			ended := status.Convert(conn.Invoke(context.Background(), health, asked, answer))
			waitMs := int64(0)
			for _, detail := range ended.Details() {
				if info, is := detail.(*errdetails.RetryInfo); is {
					waitMs = info.RetryDelay.AsDuration().Milliseconds()
				}
			}
			tell(object{"code": ended.Code().String(), "wait_ms": waitMs})
		}()
	}
	all.Wait()
}

type producer struct {
	stream   grpc.ClientStream
	vchannel string
	obeys    bool
	places   chan struct{}

	mutex   sync.Mutex
	state   string
	rate    float64
	next    time.Time
	sent    int
	late    int
	landed  int
	refused map[string]int
	cause   string
}

func newProducer(conn *grpc.ClientConn, created object, vchannel string, obeys bool) *producer {
	data, err := proto.Marshal(made(streaming+"CreateProducerRequest", created))
	check(err)
	header := metadata.Pairs("create-producer", base64.StdEncoding.EncodeToString(data))
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(metadata.NewOutgoingContext(context.Background(), header), both, produce)
	check(err)
	return &producer{
		stream: stream, vchannel: vchannel, obeys: obeys,
		places: make(chan struct{}, inFlightMax), state: "NORMAL", refused: map[string]int{},
	}
}

func (it *producer) run(during time.Duration, size int) {
	ended := make(chan struct{})
	go it.read(ended)
	properties := object{"_t": "2", "_v": "1", "_h": "", "_vc": it.vchannel}
	payload := base64.StdEncoding.EncodeToString(make([]byte, size))
	half, until := time.Now().Add(during/2), time.Now().Add(during)
	for time.Now().Before(until) {
		// The place first: a rejection may come while this waits for one.
		it.places <- struct{}{}
		if !it.maySend(size) {
			<-it.places
			time.Sleep(5 * time.Millisecond)
			continue
		}
		number := it.count(time.Now().After(half))
		it.send(object{"produce": object{
			"requestId": number, "message": object{"payload": payload, "properties": properties},
		}}, ended)
	}
	it.send(object{"close": object{}}, ended)
	check(it.stream.CloseSend())
	<-ended
	tell(object{
		"sent": it.sent, "late": it.late, "landed": it.landed,
		"refused": it.refused, "cause": it.cause,
	})
}

// count counts a message that is sent now, also as `late` if it is.
func (it *producer) count(late bool) int {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	it.sent++
	if late {
		it.late++
	}
	return it.sent
}

func (it *producer) send(request object, ended chan struct{}) {
	if err := it.stream.SendMsg(made(streaming+"ProduceRequest", request)); err == io.EOF {
		<-ended // the reader says why
		check(err)
	} else {
		check(err)
	}
}

// maySend tells whether a message of this size may go now, and counts it.
func (it *producer) maySend(size int) bool {
	if !it.obeys {
		return true
	}
	it.mutex.Lock()
	defer it.mutex.Unlock()
	now := time.Now()
	if it.state == "REJECT" || (it.state == "SLOWDOWN" && now.Before(it.next)) {
		return false
	}
	if it.state == "SLOWDOWN" {
		if it.next.Before(now) {
			it.next = now
		}
		it.next = it.next.Add(time.Duration(float64(size) / it.rate * float64(time.Second)))
	}
	return true
}

type answer struct {
	Create    *struct{} `json:"create"`
	Close     *struct{} `json:"close"`
	RateLimit *struct {
		State string `json:"state"`
		Rate  string `json:"rate"`
	} `json:"rateLimit"`
	Produce *struct {
		Error *struct {
			Code  string `json:"code"`
			Cause string `json:"cause"`
		} `json:"error"`
	} `json:"produce"`
}

// read takes the answers until the close.
func (it *producer) read(ended chan struct{}) {
	defer close(ended)
	for {
		message := message(streaming + "ProduceResponse")
		check(it.stream.RecvMsg(message))
		text, err := protojson.Marshal(message)
		check(err)
		found := answer{}
		check(json.Unmarshal(text, &found))
		switch {
		case found.Close != nil:
			return
		case found.RateLimit != nil:
			it.limit(found.RateLimit.State, found.RateLimit.Rate)
		case found.Produce != nil:
			<-it.places
			if found.Produce.Error != nil {
				it.refused[found.Produce.Error.Code]++
				it.cause = found.Produce.Error.Cause
			} else {
				it.landed++
			}
		}
	}
}

func (it *producer) limit(state string, rate string) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	it.state = state[len("WAL_RATE_LIMIT_STATE_"):]
	it.rate, _ = strconv.ParseFloat(rate, 64)
	it.next = time.Now()
	tell(object{"told": it.state, "rate": it.rate, "sent": it.sent})
}
