/** Combinations of statements, transactions and processes. */
import { findOrCreate, rollbackTo, savepoint, script, type Isolation, type Script, type Statement } from './script'

/** `count` processes take a script each, in any combination. */
export interface Group<T = Script> {
  readonly count: number
  readonly scripts: readonly T[]
}

/** Each statement as a transaction of its own, at each isolation level. */
export function alone(isolations: readonly Isolation[], ...statements: readonly Statement[]): Script[] {
  return isolations.flatMap((isolation) => statements.map((each) => script([{ isolation, statements: [each] }])))
}

/** Every pair of statements as one transaction. */
export function pairs(isolations: readonly Isolation[], ...statements: readonly Statement[]): Script[] {
  return isolations.flatMap((isolation) =>
    statements.flatMap((one) => statements.map((two) => script([{ isolation, statements: [one, two] }]))),
  )
}

/** Every pair of statements as two transactions, one after the other. */
export function successive(isolations: readonly Isolation[], ...statements: readonly Statement[]): Script[] {
  return isolations.flatMap((isolation) =>
    statements.flatMap((one) =>
      statements.map((two) => script([one, two].map((each) => ({ isolation, statements: [each] })))),
    ),
  )
}

/** Each statement undone by ROLLBACK TO, and then each statement. */
export function undone(isolations: readonly Isolation[], ...statements: readonly Statement[]): Script[] {
  return isolations.flatMap((isolation) =>
    statements.flatMap((one) =>
      statements.map((two) => script([{ isolation, statements: [savepoint, one, rollbackTo, two] }])),
    ),
  )
}

/** Find-or-create in a transaction, and outside of one. */
export function finds(isolations: readonly Isolation[], ...names: readonly string[]): Script[] {
  return isolations.flatMap((isolation) =>
    names.flatMap((name) => {
      const statements = [findOrCreate(name)]
      return [script([{ isolation, statements }]), script([{ isolation, statements, autocommit: true }])]
    }),
  )
}

/** Every order of a list. */
export const orders = <T>(list: readonly T[]): T[][] =>
  list.length === 0 ? [[]] : list.flatMap((first, at) => orders(list.toSpliced(at, 1)).map((rest) => [first, ...rest]))

function* choose<T>(scripts: readonly T[], count: number): Generator<T[]> {
  if (count === 0) {
    yield []
    return
  }
  for (const [index, first] of scripts.entries()) {
    for (const rest of choose(scripts.slice(index), count - 1)) yield [first, ...rest]
  }
}

/** Every group at once. */
export function* together<T>(groups: readonly Group<T>[]): Generator<T[]> {
  const [first, ...others] = groups
  if (first === undefined) {
    yield []
    return
  }
  for (const some of choose(first.scripts, first.count)) for (const rest of together(others)) yield [...some, ...rest]
}
