import { Injectable, NotFoundException } from '@nestjs/common'
import { InjectRepository } from '@nestjs/typeorm'
import { Repository } from 'typeorm'
import { insertOrFail } from 'typeorm-unique-text'
import { Bookmark } from './bookmark.entity.js'
import type { CreateBookmark, ListBookmarks } from './bookmarks.dto.js'

@Injectable()
export class BookmarksService {
  constructor(@InjectRepository(Bookmark) private readonly bookmarks: Repository<Bookmark>) {}

  /** @throws TextTakenError with every text that is taken, and by which bookmark */
  async create(values: CreateBookmark): Promise<Bookmark> {
    return await insertOrFail(this.bookmarks.manager, Bookmark, values)
  }

  /** A URL is found by index, however it is spelt. */
  async list({ url, take, skip }: ListBookmarks): Promise<Bookmark[]> {
    const where = url === undefined ? {} : { url }
    return await this.bookmarks.find({ where, order: { id: 'ASC' }, take, skip })
  }

  async find(id: number): Promise<Bookmark> {
    const bookmark = await this.bookmarks.findOneBy({ id })
    if (!bookmark) throw new NotFoundException(`There is no bookmark ${id}.`)
    return bookmark
  }

  /** @throws TextTakenError where another bookmark has the name */
  async rename(id: number, name: string): Promise<Bookmark> {
    const bookmark = await this.find(id)
    return await this.bookmarks.save(Object.assign(bookmark, { name }))
  }
}
