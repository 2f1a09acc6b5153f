import type { EntityManager, EntityMetadata, ObjectLiteral } from 'typeorm'
import { dataSourceOf, type Declaration, type NameDeclaration } from '../registry/registry'
import { requireManager } from '../rows/call-arguments'
import type { HolderEntity } from '../rows/holder-row'
import { findHolderStatement, type FoundHolder, releaseExpiredStatement } from '../sql/name-statements'
import type { Statement } from '../sql/statements'
import { declaringMetadata, holderOf, namesIn, namesTable, namesText } from '../typeorm/names'
import { idOf } from '../typeorm/refused-text'

/** Who holds a name. */
interface FoundName {
  readonly declaration: NameDeclaration
  /** Of the class that declares the name. */
  readonly metadata: EntityMetadata
  /** Primary key of the row, as an id map. */
  readonly id: ObjectLiteral
  readonly since: Date
  readonly until: Date | null
}

/**
 * The names of a DataSource, and the statements for the table that keeps them: these throw a DeclarationError where it
 * keeps none.
 */
interface Names {
  /** Each once. */
  readonly declared: readonly NameDeclaration[]
  /** The unique text of that table. */
  readonly text: () => Declaration
  readonly hashOf: (name: string) => string
  /** Removes former names whose time is over. Parameter: how many at most. */
  readonly releaseExpired: () => Statement<number>
  /** @param options find a former name too, and read the row itself */
  readonly findHolder: (
    holders: readonly HolderEntity[],
    options: { readonly former: boolean; readonly entity: boolean },
  ) => Statement<FoundHolder>
  /** @returns undefined if another DataSource has that entity */
  readonly holderOf: (found: FoundHolder, key: readonly unknown[]) => FoundName | undefined
}

/** @throws DeclarationError for anything but an EntityManager */
export function namesOf(manager: EntityManager): Names {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  return {
    declared: namesIn(dataSource),
    text: () => namesText(dataSource),
    hashOf: (name) => namesTable(dataSource).digest.js(name),
    releaseExpired: () => releaseExpiredStatement(namesTable(dataSource)),
    findHolder: (holders, { former, entity }) => {
      const tables = holders.map(({ table: holder, read, spatial }) => ({
        holder,
        select: entity ? read : [],
        spatial,
      }))
      return findHolderStatement(namesTable(dataSource), tables, former)
    },
    holderOf: (found, key) => {
      const declaration = holderOf(dataSource, { holder: found.holder, holderColumn: found.column })
      if (!declaration) return undefined
      return {
        declaration,
        metadata: declaringMetadata(declaration),
        id: idOf(declaration.metadata, key) ?? {},
        since: new Date(found.since),
        until: found.until === null ? null : new Date(found.until),
      }
    },
  }
}
