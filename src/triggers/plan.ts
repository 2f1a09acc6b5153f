import type { Change } from '../sql/alter'
import type { InstalledTriggers } from '../sql/catalog'
import { quote } from '../sql/identifier'
import { attach, detach } from '../sql/library'
import { type TableName, tableName } from '../sql/text-table'
import {
  attachedDrift,
  attachedTo,
  type HandOver,
  type InstalledDeclaration,
  isOf,
  lacksWritten,
  sameKeys,
  UNCOMPARED,
  type WantedDeclaration,
} from './attached'
import { type Declared, kindOfDeclaration, shortDeclaration } from './kinds'

/** A table with the declarations that it should have and those that it has. */
export interface DeclaredTable extends TableName {
  readonly declared: readonly WantedDeclaration[]
  readonly installed: InstalledTriggers
  /** Whether the table itself changes between the two parts of the plan. Names follow columns that are only renamed. */
  readonly touched: boolean | 'renamed'
  /** Declarations that are new or gone, with what replaces detach if they wrote to another table. */
  readonly released: readonly { readonly declaration: Declared; readonly release?: readonly string[] | undefined }[]
}

/** The changes before and after TypeORM changes the tables. Both are empty if the triggers are as they should be. */
export interface TriggerPlan {
  readonly before: Change
  readonly after: Change
}

/**
 * Plans the declarations of a table. One that differs is detached before the table changes, because a trigger that names
 * a column blocks DROP COLUMN and ALTER TYPE, and is attached anew afterwards.
 */
export function planDeclared({ declared, installed, touched, released, ...table }: DeclaredTable): TriggerPlan {
  const made = declared.filter(
    (one) => touched || lacksWritten(one, installed) || attachedDrift(one, installed, true).length > 0,
  )
  const found = attachedTo(installed)
  const replaced = made.filter(
    (one) => isReplaceable(one, found) && (!touched || (touched === 'renamed' && one.declaration.kind === 'name')),
  )
  const standing = declared.filter((one) => !made.includes(one))
  const isAmong = (wanted: readonly WantedDeclaration[], one: InstalledDeclaration): boolean =>
    wanted.some(({ declaration }) => isOf(declaration, one))
  const all = found.filter((one) => !isAmong(replaced, one) && (!one.trusted || !isAmong(standing, one)))
  // What an untrusted role has put beside a declaration only loses its triggers.
  const beside = all.filter((one) => isAmong(standing, one)).flatMap(({ triggers }) => triggers)
  const gone = all.filter((one) => !isAmong(standing, one))
  const firsts = gone.filter(({ declaration }, at) => gone.findIndex((one) => isOf(declaration, one)) === at)
  // A declaration contains SQL. A revert makes only that of a role that could change the table as its owner can.
  const again = (declaration: Declared): string[] => {
    const trusted = found.find((one) => one.trusted && isOf(declaration, one))
    if (trusted) return [attach(table, declaration.kind, shortDeclaration(trusted.declaration))]
    return made.filter((one) => isOf(one.declaration, { declaration })).map((one) => one.attach)
  }
  const fresh = made.filter((one) => !replaced.includes(one))
  const handed = new Map(
    firsts.flatMap((one) => {
      const heir = one.trusted ? heirOf(one, firsts, fresh) : undefined
      const statements = heir?.handOver?.(one.declaration)
      return heir && statements ? [[one, { heir, ...statements }]] : []
    }),
  )
  const releaseOf = (one: Pick<WantedDeclaration, 'declaration'>): readonly string[] | undefined =>
    released.find(({ declaration }) => isOf(declaration, one))?.release
  const ofHeir = (wanted: WantedDeclaration): HandOver | undefined =>
    [...handed.values()].find(({ heir }) => heir === wanted)
  return {
    before: {
      up: [
        ...beside.map(({ name }) => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${tableName(table)}`),
        ...firsts.flatMap(
          (one) =>
            handed.get(one)?.up[0] ?? (one.trusted ? releaseOf(one) : undefined) ?? detach(table, one.declaration),
        ),
      ],
      down: [
        ...beside.map(({ definition }) => definition),
        ...firsts.flatMap((one) => handed.get(one)?.down[1] ?? again(one.declaration)),
        ...replaced.filter((one) => !lacksWritten(one, installed)).flatMap(({ declaration }) => again(declaration)),
      ],
    },
    after: {
      up: made.map((one) => ofHeir(one)?.up[1] ?? one.attach),
      down: fresh.flatMap((one) => ofHeir(one)?.down[0] ?? releaseOf(one) ?? one.detach),
    },
  }
}

/** The wanted declaration that follows one that is gone: of the same name, or else the only one of its kind that is left. */
function heirOf(
  { declaration }: InstalledDeclaration,
  gone: readonly InstalledDeclaration[],
  fresh: readonly WantedDeclaration[],
): WantedDeclaration | undefined {
  const same = fresh.find((one) => isOf(one.declaration, { declaration }))
  if (same) return same
  const left = fresh.filter(
    (one) => one.declaration.kind === declaration.kind && !gone.some((each) => isOf(one.declaration, each)),
  )
  const others = gone.filter(
    (one) => one.declaration.kind === declaration.kind && !fresh.some((each) => isOf(each.declaration, one)),
  )
  return left.length === 1 && others.length === 1 ? left[0] : undefined
}

/** Whether attach can replace what a table has of a declaration while the rows remain. Then readers do not wait. */
function isReplaceable({ declaration }: WantedDeclaration, all: readonly InstalledDeclaration[]): boolean {
  const found = all.filter((one) => isOf(declaration, one))
  const without = new Set([...UNCOMPARED, ...(kindOfDeclaration(declaration)?.ofTriggers ?? [])])
  return found.length > 0 && found.every((one) => sameKeys(declaration, one.declaration, without))
}
