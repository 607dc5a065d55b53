;; Jepsen's workload for Kafka and Elle's checker for lists, on two histories from standard input.
;; Each finding is a line: the checker, the anomaly, how often, and one case of it.
(require '[clojure.edn :as edn]
         '[clojure.string :as string]
         '[elle.list-append :as lists]
         '[jepsen.history :as history]
         '[jepsen.tests.kafka :as kafka])

(def shown-max 400)

(defn- case-of [found]
  (let [text (string/replace (pr-str (if (sequential? found) (first found) found)) #"\s+" " ")]
    (subs text 0 (min shown-max (count text)))))

(defn- tell [checker anomalies]
  (doseq [[anomaly found] anomalies]
    (println (string/join "\t" [checker (name anomaly)
                                (if (coll? found) (count found) 1) (case-of found)]))))

(defn- judged [checker work]
  (try (tell checker (work))
       (catch clojure.lang.ExceptionInfo error
         (tell checker {(get (ex-data error) :type :error) [(ex-data error)]}))
       (catch AssertionError error   ; as of a value that nobody wrote
         (tell checker {:assertion [(.getMessage error)]}))))

(with-open [in (java.io.PushbackReader. (java.io.InputStreamReader. System/in "UTF-8"))]
  (let [logs (history/history (edn/read in))
        appends (history/history (edn/read in))]
    ;; Values that nobody has polled in the end are lost writes if they matter.
    (judged "Jepsen" #(dissoc (:errors (kafka/analysis logs {:ww-deps true})) :unseen))
    (judged "Elle" #(:anomalies (lists/check {:consistency-models [:strict-serializable]}
                                             appends)))))
(shutdown-agents)
