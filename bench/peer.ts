/** What a peer says of one text. */
export interface Answer {
  readonly id: string
  readonly text: string
  /** Undefined where the peer does not say. */
  readonly created: boolean | undefined
}

/**
 * One way to find or create rows, with a table and a pool of its own. Each operation is there only where the peer has it;
 * a phase takes the peers that have what it measures. To add a peer, write one file and name it in `peers/index.ts`.
 */
export interface Peer {
  readonly name: string
  /** Name of the table, in lower case, which has a column `id` of a sequence. */
  readonly table: string
  /** SQL for the text of a row. @default 'url' */
  readonly textSql?: string
  /** Two texts of one MD5 as this peer's table makes it; null where none are known. @default two short texts */
  readonly collision?: readonly [string, string] | null
  /** The row of a text, found or created. */
  readonly findOrCreate?: (text: string) => Promise<Answer>
  /** The row of a text, if there is one. */
  readonly find?: (text: string) => Promise<Answer | null>
  /** BEGIN, `findOrCreate` and COMMIT, on one connection. */
  readonly inTransaction?: (text: string) => Promise<Answer>
  /** The rows of different texts, in their order. */
  readonly findOrCreateMany?: (texts: readonly string[]) => Promise<readonly Answer[]>
  /** Stores the texts that are not there, and learns nothing of any row. */
  readonly store?: (texts: readonly string[]) => Promise<void>
  /** Stores what the lines of a file say: different spellings of a URL are one, and what is no URL is left out. */
  readonly importLines?: (lines: readonly string[]) => Promise<void>
  /** Puts rows into the table, however. Their texts are new and different. */
  readonly fill: (texts: readonly string[]) => Promise<void>
  readonly close: () => Promise<void>
}

/** What a peer connects to. */
export interface Place {
  readonly url: string
  /** Connections of its pool, at most. */
  readonly poolSize: number
}

export interface PeerFactory {
  readonly name: string
  /** Makes the table if it is not there. */
  open(place: Place): Promise<Peer>
}
