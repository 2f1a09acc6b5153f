import { Body, Controller, Get, Param, ParseIntPipe, Patch, Post, Query } from '@nestjs/common'
import type { Bookmark } from './bookmark.entity.js'
import { CreateBookmark, ListBookmarks, RenameBookmark } from './bookmarks.dto.js'
import { BookmarksService } from './bookmarks.service.js'

@Controller('bookmarks')
export class BookmarksController {
  constructor(private readonly bookmarks: BookmarksService) {}

  @Post()
  async create(@Body() values: CreateBookmark): Promise<Bookmark> {
    return await this.bookmarks.create(values)
  }

  @Get()
  async list(@Query() query: ListBookmarks): Promise<Bookmark[]> {
    return await this.bookmarks.list(query)
  }

  @Get(':id')
  async find(@Param('id', ParseIntPipe) id: number): Promise<Bookmark> {
    return await this.bookmarks.find(id)
  }

  @Patch(':id')
  async rename(@Param('id', ParseIntPipe) id: number, @Body() { name }: RenameBookmark): Promise<Bookmark> {
    return await this.bookmarks.rename(id, name)
  }
}
