import type { DataSource, ObjectLiteral } from 'typeorm'
import { PreparedMany } from '../find-or-create/prepared-many'
import type { FindOrCreateManyResult } from '../find-or-create/run-batch'
import type { DeletedOption, ProgressOptions } from '../rows/call-options'
import type { EntityText } from '../rows/entity-text'
import type { RelationsToLoad } from '../rows/load-relations'
import { BATCH_ROWS } from './window-size'

/** What to do with every row. */
export interface WindowRules {
  readonly entityText: EntityText
  readonly load: RelationsToLoad | undefined
  readonly create?: ObjectLiteral | ((values: never, index: number) => unknown) | undefined
  readonly deleted?: DeletedOption | undefined
  readonly progress?: ProgressOptions
  /** Called when two windows blocked each other at the server. */
  readonly onLost?: () => void
}

/** Results in the order of the inputs. If an error ended the window, some may be missing. */
export interface Outcome<Entity> {
  readonly results: readonly (FindOrCreateManyResult<Entity> | undefined)[]
  readonly failure: { readonly error: unknown } | undefined
}

/** Inputs that are sorted by hash and sent together. */
export class Window<Entity extends ObjectLiteral> {
  readonly rows: PreparedMany<Entity>
  private outcome: Outcome<Entity> | undefined
  private running: Promise<void> | undefined

  private readonly ahead: PreparedMany<Entity>[]

  /**
   * @param first index of its first input
   * @param ahead windows that are still under way; their rows are not requested again
   */
  constructor(
    private readonly rules: WindowRules,
    first: number,
    ahead: readonly Window<Entity>[],
  ) {
    this.ahead = ahead.map(({ rows }) => rows)
    this.rows = new PreparedMany<Entity>(rules.entityText, rules.load, {
      ...rules,
      first,
      ahead: this.ahead,
      batchRows: BATCH_ROWS,
    })
  }

  /** Never rejects: `done` says how it ended. */
  async run(dataSource: DataSource): Promise<void> {
    // Or every window would hold all those before it.
    this.ahead.length = 0
    this.running ??= this.send(dataSource)
    await this.running
  }

  get inputs(): number {
    return this.rows.inputs
  }

  /** Characters of the inputs that wait to be sent. */
  get characters(): number {
    return this.rows.characters
  }

  /** How it ended; to be taken in the order of the windows. */
  async take({ manager }: DataSource): Promise<Outcome<Entity>> {
    const { results = [] } = this.outcome ?? {}
    let { failure } = this.outcome ?? {}
    try {
      await this.rows.answerShared(failure ? undefined : manager)
    } catch (error) {
      failure = { error }
    }
    // The signal came too late for this one.
    const signal = this.rules.progress?.signal
    const isWhole = signal?.aborted === true && failure?.error === signal.reason && !results.includes(undefined)
    return { results, failure: isWhole ? undefined : failure }
  }

  get done(): boolean {
    return this.outcome !== undefined
  }

  get hasFailed(): boolean {
    return this.outcome?.failure !== undefined
  }

  private async send({ manager }: DataSource): Promise<void> {
    try {
      this.outcome = { results: await this.rows.run(manager), failure: undefined }
    } catch (error) {
      this.outcome = { results: this.rows.results, failure: { error } }
    }
  }
}
